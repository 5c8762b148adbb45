package child

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_AARCH64

// ownCalls are those of runtimeCalls that this processor alone has.
var ownCalls []uint32
