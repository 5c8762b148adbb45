package child

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// ownCalls are those of runtimeCalls that this processor alone has.
var ownCalls = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_TIME}
