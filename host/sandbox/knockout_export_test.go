package sandbox

import "github.com/carrelhost/carrel/host/sandbox/module"

// RewriteOptions are those of every module.
func RewriteOptions() module.Options { return rewriteOptions() }
