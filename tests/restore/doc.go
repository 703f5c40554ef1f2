// Package restore holds tests that take databases and streams apart, as backups, copies and lost disks do, and put them
// right with the command line, as an operator would.
package restore
