//go:build !unix

package datadir

const openFlags = 0
