// Package examples holds the example plugins, one folder each: a source, a
// README and a test that runs it. The sources are embedded so that the demo
// needs nothing but the binary.
package examples

import "embed"

// Files holds the sources that the demo uses, under the paths that they have
// here.
//
//go:embed */*.md counter/plugin.go
var Files embed.FS
