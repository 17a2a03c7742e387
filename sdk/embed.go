// Package sdk embeds the sources of the SDKs, so that a new plugin's project
// gets them from the binary and is built offline.
package sdk

import "embed"

// Go holds the Go SDK under go/, the path that it has in the module. Its tests
// are there, too; a project leaves them out.
//
//go:embed go/*.go go/carreltest/*.go
var Go embed.FS

// The committed guest of the C SDK is built anew by clang:
//go:generate go test ../internal/scaffold -run ^TestTheCommittedGuestOfC -update

// C holds the C SDK under c/: carrel.h and the example's source.
//
//go:embed c/carrel.h c/examples/hello/hello.c
var C embed.FS
