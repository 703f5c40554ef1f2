// Package scaffold writes the files of a new target into the module of somebody who uses Millbridge, and finds out later
// whether what belongs together there has drifted apart: the registry, the configuration, the page on targets and the
// tests.
//
// What it writes compiles and passes its tests as it is. From then on the files belong to whoever asked for them; nothing
// is ever generated a second time.
package scaffold
