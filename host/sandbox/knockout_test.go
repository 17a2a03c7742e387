package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// noGuard is the name of nothing, so that knocking it out changes nothing but
// how long a case may take.
const noGuard = "nothing"

// mutant is a test binary of which every guard can be knocked out.
type mutant struct {
	binary string
	guards []guard
}

func buildMutant(t *testing.T) mutant {
	t.Helper()
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	m := mutant{binary: filepath.Join(dir, "mutant")}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, p := range guardedPackages() {
		c := copyOf(t, p, rules())
		m.guards = append(m.guards, c.guards...)
		for name, src := range c.files {
			path := filepath.Join(dir, p.name+"."+name)
			if err := os.WriteFile(path, src, 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(here, p.dir, name)] = path
		}
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", m.binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c of the copy: %v\n%s", err, out)
	}
	return m
}

// shows judges cases with guards knocked out, and returns a verdict for each
// up to the first that ended the process.
func (m mutant) shows(t *testing.T, out []string, cases ...string) []string {
	t.Helper()
	// The process ends itself before that, if it can.
	most := 2 * frozenAfter
	if len(out) == 0 {
		most = givenUpAfter * time.Duration(len(cases))
	}
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.binary)
	cmd.Env = append(os.Environ(), heldEnv+"="+strings.Join(cases, "\n"), knockedOutEnv+"="+strings.Join(out, "\n"))
	b, err := cmd.Output()
	verdicts := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == unknownCase {
		t.Fatal(verdicts[len(verdicts)-1])
	} else if err != nil {
		verdicts = append(verdicts, "the process ended: "+err.Error())
	}
	return slices.DeleteFunc(verdicts, func(v string) bool { return v == "" })
}

// judges returns the verdict on one case with guards knocked out.
func (m mutant) judges(t *testing.T, out []string, name string) string {
	t.Helper()
	verdicts := m.shows(t, out, name)
	if len(verdicts) == 0 {
		t.Fatalf("there is no verdict on %q without %q, and the process ended well", name, out)
	}
	return verdicts[0]
}

// TestNoGuardIsThereForNothing knocks out one guard after the other, and a
// case of the corpus that it holds must then not be held any more. A guard
// without a row fails, and so does a row whose guard or case is not there.
func TestNoGuardIsThereForNothing(t *testing.T) {
	m := buildMutant(t)
	rows := slices.Concat(moduleRows(), ruleRows(), runRows())
	missing := map[string]string{}
	for _, g := range m.guards {
		missing[g.id] = g.pos.String()
	}
	for name := range ruleNames() {
		missing[name] = "the rules"
	}
	there := maps.Clone(missing)
	for _, r := range rows {
		for _, g := range append(r.although, r.guard) {
			if there[g] == "" {
				t.Errorf("there is no guard %q", g)
			}
		}
		delete(missing, r.guard)
	}
	for g := range notBounds() {
		if there[g] == "" {
			t.Errorf("there is no guard %q", g)
		}
		delete(missing, g)
	}
	for g, where := range missing {
		t.Errorf("%s: no case of the corpus is known that needs the guard %q", where, g)
	}
	var cases []string
	for _, r := range rows {
		cases = append(cases, r.by)
	}
	slices.Sort(cases)
	cases = slices.Compact(cases)
	t.Run("with all guards", func(t *testing.T) {
		for some := range slices.Chunk(cases, 20) {
			t.Run(some[0], func(t *testing.T) {
				t.Parallel()
				for rest := some; len(rest) > 0; {
					verdicts := m.shows(t, nil, rest...)
					if len(verdicts) == 0 {
						t.Fatalf("there is no verdict on %q", rest)
					}
					for i, v := range verdicts[:min(len(verdicts), len(rest))] {
						if v != heldVerdict { // perhaps the machine was busy
							v = m.judges(t, nil, rest[i])
						}
						if v != heldVerdict {
							t.Errorf("%s: %s", rest[i], v)
						}
					}
					rest = rest[min(len(verdicts), len(rest)):]
				}
			})
		}
	})
	for _, r := range rows {
		t.Run(r.guard, func(t *testing.T) {
			t.Parallel()
			// The two judgements follow each other and have the same time: else
			// a machine that is busy could be what does not hold the case. It can
			// still be that once, so a guard has to show twice what it is for, and
			// a case that is not held with its guard either says nothing.
			const enough, most, tries = 2, 3, 9
			in := append(slices.Clone(r.although), noGuard)
			shown, judged := 0, 0
			var last string // of what shows nothing
			for tried := 0; tried < tries && shown < enough && judged-shown <= most-enough; tried++ {
				if with := m.judges(t, in, r.by); with != heldVerdict {
					last = fmt.Sprintf("with the guard, but without %q: %s", r.although, with)
					continue
				}
				judged++
				v := m.judges(t, append(slices.Clone(in), r.guard), r.by)
				if v == heldVerdict {
					last = "it is held without the guard"
					continue
				}
				shown++
				t.Logf("%s: %.300s", r.by, v)
			}
			if shown < enough {
				t.Errorf("%s: %s", r.by, last)
			}
		})
	}
}
