// Package command is a target that runs a program of this machine for each message.
//
// # The program
//
// Its path and arguments are fixed by the configuration. There is no shell, and nothing of a message gets into the
// arguments: a payload cannot become an option or a command. The program gets
//
//	stdin         the payload's bytes, then the end of the file
//	directory     [Config.Dir]
//	environment   PATH, LANG, the variables of [Config.Env], and those below; nothing else of the bridge's own
//
//	MILLBRIDGE_ID            the message's id; a replay has one of its own
//	MILLBRIDGE_KEY           idempotency key: the same for every run of this message, replays included
//	MILLBRIDGE_KIND          job or event
//	MILLBRIDGE_NAME          the job's action or the event's name
//	MILLBRIDGE_TARGET        name of the target or subscription
//	MILLBRIDGE_TENANT, MILLBRIDGE_ACTOR, MILLBRIDGE_REQUEST_ID, MILLBRIDGE_TRACEPARENT, MILLBRIDGE_CONTENT_TYPE
//	MILLBRIDGE_ATTEMPT       1 for the first attempt
//	MILLBRIDGE_REPLAY        how often an operator has put the message back
//
// A message of a foreign publisher whose values have a NUL byte or are not UTF-8 is permanent: they cannot be variables.
//
// # What its end means
//
//	exit code 0                              handled
//	65 (EX_DATAERR), [Config.PermanentCodes] permanent
//	every other exit code, 75 among them     temporary
//	ended by a signal                        temporary
//	it cannot be started                     temporary
//	ctx has ended                            the error of ctx
//
// Exit code 1 says nothing about whether it helps to try again: a shell ends with it when a network is down, an
// interpreter when its script has a fault. A few attempts too many cost less than a message that an operator has to
// replay by hand, so whoever knows better lists the codes. A program that is missing is a fault of the installation and not
// of the message: its messages wait for the repair, by the retry policy and the breaker.
//
// The end of what the program printed to stderr becomes part of the error, as one line in which the values of
// [Config.Env] are masked.
//
// # How it is stopped
//
// The program starts in a process group of its own. When ctx ends (the attempt's time is up, the bridge stops), the group
// gets SIGTERM, and after [Config.Grace] SIGKILL. A run that was stopped counts as not done, whatever the program's exit
// code. When the program has ended by itself, what is left of its group is killed, too: the job is over. A process that has
// left the group and keeps the output open does not hold the handler: it stops listening a second later. Every
// program is waited for, so no zombies are left. If the bridge itself is killed, the program runs on, and the message is run
// again once the lease of its key is over: see the next section.
//
// # At least once
//
// The program must be harmless to repeat: with MILLBRIDGE_KEY it can ask the other side whether the work was done, name a
// file after it, or pass it on. Keys may have any characters: do not take one for a path as it is.
//
// # Where it works
//
// On Linux and macOS. Elsewhere [New] says that it does not.
package command
