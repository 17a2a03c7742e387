// Package testproc is for tests that look at the process they run in, take
// something from all of it, or wait for what another goroutine of it does.
package testproc

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// apartEnv names the test that a process was started for.
const apartEnv = "CARREL_TEST_APART"

// Again returns the command that runs the test at hand once more, in a process
// that runs nothing else, where Inside reports true. env is added to this
// process's environment. The command ends with ctx, and is the caller's to change
// and to start.
func Again(ctx context.Context, t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	var path []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		path = append(path, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run="+strings.Join(path, "/")) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), append(env, apartEnv+"="+t.Name())...)
	return cmd
}

// Inside reports whether this process was started for the test at hand.
func Inside(t testing.TB) bool { return os.Getenv(apartEnv) == t.Name() }

// Apart runs the test at hand once more, in a process that runs nothing else
// and has env besides this one's environment: there it returns true, and the
// test goes on. Here the test fails or is skipped as it did there, else Apart
// returns false, and nothing is left to do.
func Apart(t testing.TB, env ...string) bool {
	t.Helper()
	if Inside(t) {
		return true
	}
	Run(t, Again(t.Context(), t, env...))
	return false
}

// Run runs what Again returned. The test fails or is skipped as it did there.
func Run(t testing.TB, again *exec.Cmd) {
	t.Helper()
	said, err := again.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(said), "--- PASS: "+t.Name()+" "):
		t.Logf("in a process of its own:\n%s", said)
	case err == nil && strings.Contains(string(said), "--- SKIP: "+t.Name()+" "):
		t.Skipf("in a process of its own:\n%s", said)
	default:
		t.Errorf("in a process of its own it ended with %v:\n%s", err, said)
	}
}
