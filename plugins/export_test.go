package plugins

import (
	"strconv"
	"time"

	"github.com/carrelhost/carrel"
)

// TextBytes is what a loaded version is said to take besides its code.
func TextBytes(l *Loaded) int64 { return l.texts }

// Told is how many quarantined versions a catalog remembers after its log told
// of n.
func Told(n int) int {
	t := newTold()
	for i := range n {
		t.first(build{plugin{"acme", carrel.PluginName(strconv.Itoa(i))}, carrel.Digest{}}, time.Time{})
	}
	return t.since.Len()
}
