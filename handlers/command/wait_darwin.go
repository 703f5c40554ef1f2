package command

// leaveZombie is WNOWAIT. Here waitid returns for a program that was stopped, too, which is then ended: see
// https://golang.org/issue/19314.
const leaveZombie = 0x20
