package quarantine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/quarantine"
)

var start = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func digest(name string) carrel.Digest { return carrel.DigestOf([]byte(name)) }

// open opens a list, whose log is in said.
func open(path string, now time.Time) (l *quarantine.List, said *bytes.Buffer) {
	said = &bytes.Buffer{}
	return quarantine.Open(path, now, slog.New(slog.NewTextHandler(said, nil))), said
}

func crash(t *testing.T, l *quarantine.List, at time.Time, names ...string) []quarantine.Record {
	t.Helper()
	var suspects []quarantine.Suspect
	for _, name := range names {
		suspects = append(suspects, quarantine.Suspect{Digest: digest(name), Tenant: carrel.TenantID("t-" + name)})
	}
	records, err := l.Crashed(at, suspects)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestAModuleIsQuarantinedAtItsSecondCrashWithinAWeek(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		crashes []time.Duration // after start
		want    bool
	}{
		"one crash is none of its own":                {crashes: []time.Duration{0}},
		"a second one an hour later":                  {crashes: []time.Duration{0, time.Hour}, want: true},
		"a second one a week later":                   {crashes: []time.Duration{0, 7 * day}, want: true},
		"a second one after more than a week":         {crashes: []time.Duration{0, 7*day + 1}},
		"a second and a third, each more than a week": {crashes: []time.Duration{0, 8 * day, 16 * day}},
		"a third within a week of the second":         {crashes: []time.Duration{0, 8 * day, 9 * day}, want: true},
		"a second one by a clock that was set back":   {crashes: []time.Duration{0, -day}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "quarantine.json")
			for _, after := range c.crashes { // each in a process of its own
				l, said := open(path, start.Add(after))
				crash(t, l, start.Add(after), "a")
				if said.Len() > 0 {
					t.Error(said)
				}
			}
			l, _ := open(path, start.Add(c.crashes[len(c.crashes)-1]))
			if _, got := l.Of(digest("a")); got != c.want {
				t.Errorf("quarantined: %v, want %v", got, c.want)
			}
			if _, got := l.Of(digest("b")); got {
				t.Error("another module is quarantined")
			}
		})
	}
}

func TestAQuarantineLastsUntilItIsLiftedAndThenTheNextCrashIsTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quarantine.json")
	l, _ := open(path, start)
	crash(t, l, start, "a", "a", "b")
	if records := crash(t, l, start.Add(time.Hour), "a"); len(records) != 1 || len(records[0].Crashes) != 2 || !records[0].Since.Equal(start.Add(time.Hour)) {
		t.Errorf("after the second crash: %+v", records)
	}
	year := start.Add(365 * 24 * time.Hour)
	l, _ = open(path, year)
	r, ok := l.Of(digest("a"))
	if !ok || len(r.Crashes) != 2 || !slices.Equal(r.Tenants, []carrel.TenantID{"t-a"}) {
		t.Errorf("a year later: %+v, %v", r, ok)
	}
	if all := l.After(carrel.Digest{}, 10); len(all) != 1 {
		t.Errorf("what ran at one crash is remembered for a year: %+v", all)
	}
	if err := l.Lift(digest("a")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a", "b"} {
		if err := l.Lift(digest(d)); carrel.CodeOf(err) != abi.NotFound {
			t.Errorf("lift %s: %v", d, err)
		}
	}
	l, _ = open(path, year)
	if _, ok := l.Of(digest("a")); ok {
		t.Error("it is quarantined after it was lifted")
	}
	crash(t, l, year, "a")
	if _, ok := l.Of(digest("a")); ok {
		t.Error("the first crash after it was lifted counts as another")
	}
}

func TestALiftThatCannotBeStoredChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, _ := open(filepath.Join(dir, "quarantine.json"), start)
	crash(t, l, start, "a")
	crash(t, l, start, "a")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.Lift(digest("a")); err == nil {
		t.Error("it is lifted without a file")
	}
	if _, ok := l.Of(digest("a")); !ok {
		t.Error("it is quarantined no longer")
	}
	if records, err := l.Crashed(start, []quarantine.Suspect{{Digest: digest("a")}}); err == nil || len(records) != 1 {
		t.Errorf("a crash that is not stored: %+v, %v", records, err)
	}
}

func TestTheListIsReadInPages(t *testing.T) {
	l, _ := open(filepath.Join(t.TempDir(), "quarantine.json"), start)
	crash(t, l, start, "a", "b", "c", "d", "e")
	var got []carrel.Digest
	for at := (carrel.Digest{}); ; {
		page := l.After(at, 2)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			at = r.Digest
			got = append(got, at)
		}
	}
	if len(got) != 5 || !slices.IsSortedFunc(got, func(a, b carrel.Digest) int { return bytes.Compare(a[:], b[:]) }) {
		t.Errorf("the pages are %v", got)
	}
}

func TestWhatIsRememberedIsBoundedAndWhatIsQuarantinedGoesLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quarantine.json")
	l, _ := open(path, start)
	crash(t, l, start, "bad")
	crash(t, l, start, "bad")
	for i := range 11 {
		var names []string
		for n := range 100 {
			names = append(names, fmt.Sprint("n", 100*i+n))
		}
		crash(t, l, start.Add(time.Duration(i)*time.Second), names...)
	}
	for range 10 {
		crash(t, l, start, "bad")
	}
	l, said := open(path, start)
	all := l.After(carrel.Digest{}, 10_000)
	if len(all) != 1000 || said.Len() > 0 {
		t.Errorf("%d are remembered; %s", len(all), said)
	}
	if r, ok := l.Of(digest("bad")); !ok || len(r.Crashes) != 8 {
		t.Errorf("what is quarantined: %+v, %v", r, ok)
	}
	for _, r := range all {
		if r.Digest == digest("n0") {
			t.Error("the oldest is still there")
		}
	}
}

func TestTheFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quarantine.json")
	l, _ := open(path, start)
	crash(t, l, start, "a")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestADamagedFileIsMovedAsideAndNeverFatal(t *testing.T) {
	good := filepath.Join(t.TempDir(), "quarantine.json")
	l, _ := open(good, start)
	crash(t, l, start, "a", "b")
	crash(t, l, start.Add(time.Hour), "a")
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "quarantine.json")
	checked := 0
	check := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l, said := open(path, start)
		left, err := os.ReadFile(path + ".damaged")
		if moved := err == nil; moved != (said.Len() > 0) || moved && !bytes.Equal(left, content) {
			t.Fatalf("%s: it was moved: %v, and said %q", what, moved, said)
		}
		if err == nil && len(l.After(carrel.Digest{}, 10)) > 0 {
			t.Fatalf("%s: what is damaged was read", what)
		}
		if checked++; checked%100 == 0 { // it goes on, which takes a while each time
			crash(t, l, start, "c")
		}
		if err := os.RemoveAll(path + ".damaged"); err != nil {
			t.Fatal(err)
		}
	}
	for at := range whole {
		for _, b := range []byte{0, 0xff, '"', '0'} {
			damaged := slices.Clone(whole)
			damaged[at] = b
			check(fmt.Sprintf("byte %d is %#x", at, b), damaged)
		}
		check(fmt.Sprintf("cut at %d", at), whole[:at])
	}
	check("too long", append(whole, bytes.Repeat([]byte(" "), 5<<20)...))
	for what, content := range map[string]string{
		"twice the same": `{"version":1,"modules":[{"digest":"` + digest("a").String() + `","crashes":["2026-01-31T12:00:00Z"]},{"digest":"` + digest("a").String() + `","crashes":["2026-01-31T12:00:00Z"]}]}`,
		"no crash":       `{"version":1,"modules":[{"digest":"` + digest("a").String() + `","crashes":[]}]}`,
		"another member": `{"version":1,"modules":[],"more":1}`,
		"a newer one":    `{"version":2,"modules":[]}`,
		"a tenant":       `{"version":1,"modules":[{"digest":"` + digest("a").String() + `","crashes":["2026-01-31T12:00:00Z"],"tenants":["No Name"]}]}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, said := open(path, start); !strings.Contains(said.String(), "moved aside") {
			t.Errorf("%s is read", what)
		}
	}
}

func TestADirectoryInTheFilesPlaceIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quarantine.json")
	for _, dir := range []string{path, path + ".damaged"} {
		if err := os.MkdirAll(filepath.Join(dir, "more"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, said := open(path, start)
	if said.Len() == 0 {
		t.Error("nothing was said")
	}
	crash(t, l, start, "a")
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"version":1,"modules":[{"digest":"` + digest("a").String() + `","crashes":["2026-01-31T12:00:00Z"],"tenants":["acme"],"since":"2026-01-31T12:00:00Z"}]}`))
	f.Add([]byte(`{}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "quarantine.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l, _ := open(path, start)
		crash(t, l, start, "b")
		again, said := open(path, start)
		if said.Len() > 0 || len(again.After(carrel.Digest{}, 10_000)) != len(l.After(carrel.Digest{}, 10_000)) {
			t.Fatalf("what was written is not read: %s", said)
		}
	})
}
