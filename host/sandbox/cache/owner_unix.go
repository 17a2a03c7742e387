//go:build unix

package cache

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// foreign refuses what belongs to a user who is neither this one nor root.
func foreign(path string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (%d)", path, owner.Uid)
	}
	return nil
}
