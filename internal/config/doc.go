// Package config reads what the program is told: millbridge.yaml, the environment and flags.
//
// Every setting has one key, such as database.url. The key is the path in the file, MILLBRIDGE_DATABASE_URL in the
// environment and --set database.url=... on the command line, and all three are parsed by the same code. A flag beats
// the environment, the environment beats the file, the file beats the default. Whatever holds a secret can be read
// from a file instead by the key with _file appended, and prints itself masked.
//
// Nothing is half accepted: unknown keys, bad values and settings that contradict each other are reported together,
// each with the line, variable or flag it came from.
package config
