//go:build unix

package datadir

import "syscall"

// openFlags keep the opening of a file from following a link that came into its
// place, and from waiting.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
