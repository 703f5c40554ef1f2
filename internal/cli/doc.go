// Package cli is the command line: it parses, asks the packages below and renders their answers. It decides nothing.
//
// A command is one file: a constructor that describes it and a function that runs it. What people read is aligned
// text in which control characters are escaped; --json prints snake_case objects with "version":1, one a line, times in
// RFC 3339 and UTC. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 checked and found wrong.
package cli
