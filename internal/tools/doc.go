// Package tools is a module of its own for the linters, so that they never enter the go.mod of Millbridge's users.
//
//	go tool -modfile=internal/tools/go.mod staticcheck ./...
package tools
