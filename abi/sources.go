package abi

import "embed"

// Sources holds the files of this package, which every Go guest compiles: a
// new project gets a copy and so is built offline. The embedding stands here
// because a package can embed nothing above itself. A guest does not carry it:
// the linker drops a variable that nothing refers to.
//
//go:embed abi.go code.go errno.go imports.go limits.go manifest.go ops.go sources.go
var Sources embed.FS
