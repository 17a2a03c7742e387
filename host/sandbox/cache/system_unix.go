//go:build unix

package cache

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep the opening of a file from following a link that came into its
// place, and from waiting.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// foreign refuses what belongs to a user who is neither this one nor root.
func foreign(path string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (%d)", path, owner.Uid)
	}
	return nil
}
