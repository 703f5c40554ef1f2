// Command shop is the application of the crash suite: it publishes in its own transactions (shop produce) or handles
// messages (shop work) until it is stopped or killed.
package main
