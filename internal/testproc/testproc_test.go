package testproc_test

import (
	"os"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/internal/testproc"
)

// verdict is a test that remembers what is said of it.
type verdict struct {
	testing.TB
	failed, skipped bool
}

func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Skipf(string, ...any)  { v.skipped = true }

func TestATestEndsAsItDoesInAProcessOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		ends            func(t *testing.T)
		failed, skipped bool
	}{
		"it passes":               {func(*testing.T) {}, false, false},
		"it fails":                {func(t *testing.T) { t.Error("as it should") }, true, false},
		"it is skipped":           {func(t *testing.T) { t.Skip("as it should be") }, false, true},
		"it ends the process":     {func(*testing.T) { os.Exit(0) }, true, false},
		"it (panics) [sometimes]": {func(*testing.T) { panic("as it should") }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdict{TB: t}
			if testproc.Apart(v, "TESTPROC_HAS=more") {
				if os.Getenv("TESTPROC_HAS") != "more" {
					os.Exit(1)
				}
				tc.ends(t)
				return
			}
			if v.failed != tc.failed || v.skipped != tc.skipped {
				t.Errorf("failed: %v, skipped: %v", v.failed, v.skipped)
			}
		})
	}
}

func TestOnlyTheTestAtHandRunsAgain(t *testing.T) {
	if testproc.Inside(t) {
		return
	}
	said, err := testproc.Again(t.Context(), t).CombinedOutput()
	if err != nil || strings.Count(string(said), "=== RUN") != 1 {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestUntilReturnsWhenItHolds(t *testing.T) {
	asked := 0
	testproc.Until(t, "the third question", func() bool { asked++; return asked == 3 })
	if asked != 3 {
		t.Errorf("it was asked %d times", asked)
	}
}
