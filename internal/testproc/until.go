package testproc

import (
	"runtime"
	"testing"
	"time"
)

// patience is far more than anything takes that a test waits for.
const patience = time.Minute

// Until waits for what another goroutine brings about, and ends the test if
// that takes a minute. what names it, as in "a guest that runs".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
