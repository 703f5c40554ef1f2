// Package tests holds what is tested about the module as a whole: which package may import what, what a program that
// uses a part of it links, and the house rules that a compiler does not know.
package tests
