package command

// leaveZombie is WNOWAIT.
const leaveZombie = 0x20
