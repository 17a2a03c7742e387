package plugins_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/plugins"
)

func newLog(t *testing.T, lines int) *plugins.Log {
	t.Helper()
	l, err := plugins.NewLog(lines)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// kept returns how many lines of a plugin are kept, the bytes of their texts,
// and the numbers of the first and the last.
func kept(l *plugins.Log, tenant carrel.TenantID, p carrel.PluginName) (lines, bytes int, first, last int64) {
	all := l.After(tenant, p, 0, 1<<30)
	for _, e := range all {
		bytes += len(e.Text)
	}
	if len(all) > 0 {
		first, last = all[0].Seq, all[len(all)-1].Seq
	}
	return len(all), bytes, first, last
}

func TestALogKeepsTheNewestLines(t *testing.T) {
	for name, tc := range map[string]struct {
		lines, add, size int
		least, most      int // lines that are kept
	}{
		"as many as were added":            {1000, 5, 10, 5, 5},
		"no more lines than it may":        {3, 10, 10, 3, 3},
		"no more bytes than a plugin's":    {1000, 500, 4096, 60, 63},
		"empty lines are not free":         {1 << 20, 10_000, 0, 1, plugins.MaxLogPluginBytes / 100},
		"a line that is too long, cut, is": {1, 1, 100_000, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, tc.lines)
			text := strings.Repeat("x", tc.size)
			for range tc.add {
				l.Add(acme, "p", plugins.Entry{Text: text})
			}
			lines, bytes, first, last := kept(l, acme, "p")
			if lines < tc.least || lines > tc.most || bytes > plugins.MaxLogPluginBytes || last != int64(tc.add) || first != last-int64(lines)+1 {
				t.Errorf("%d lines of %d bytes are kept, %d to %d", lines, bytes, first, last)
			}
		})
	}
}

func TestALongLineIsCutBetweenCharacters(t *testing.T) {
	l := newLog(t, 1)
	l.Add(acme, "p", plugins.Entry{Text: "x" + strings.Repeat("ü", plugins.MaxLogLineBytes)})
	got := l.After(acme, "p", 0, 1)[0].Text
	if len(got) > plugins.MaxLogLineBytes+len("…") || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d bytes are kept, ending in %q", len(got), got[len(got)-8:])
	}
}

func TestATenantsLogsAreBounded(t *testing.T) {
	l := newLog(t, 1000)
	text := strings.Repeat("x", plugins.MaxLogLineBytes)
	fill := func(tenant carrel.TenantID, p carrel.PluginName) {
		for range 100 {
			l.Add(tenant, p, plugins.Entry{Text: text})
		}
	}
	name := func(i int) carrel.PluginName { return carrel.PluginName(fmt.Sprintf("p%d", i)) }
	fill("other", "p0")
	const plugin = 40
	for i := range plugin {
		fill(acme, name(i))
		l.After(acme, name(0), 0, 1) // to read a log does not keep it
	}
	sum, silent := 0, 0
	for i := range plugin {
		lines, bytes, _, _ := kept(l, acme, name(i))
		if sum += bytes; lines == 0 && silent == i {
			silent++
		} else if lines == 0 {
			t.Errorf("%s has no lines, though others were silent for longer", name(i))
		}
	}
	if sum > plugins.MaxLogTenantBytes || sum < plugins.MaxLogTenantBytes*3/4 || silent < plugin/2 {
		t.Errorf("%d bytes are kept; %d plugins lost their lines", sum, silent)
	}
	if lines, _, _, _ := kept(l, "other", "p0"); lines == 0 {
		t.Error("one tenant's lines pushed another's out")
	}
	// The numbers go on, so that whoever follows a log misses nothing.
	l.Add(acme, name(0), plugins.Entry{Text: "again"})
	if lines, _, first, _ := kept(l, acme, name(0)); lines != 1 || first != 101 {
		t.Errorf("%d lines from %d", lines, first)
	}
}

func TestLinesAfterADropAreBoundedAsWell(t *testing.T) {
	l := newLog(t, 1000)
	l.Add(acme, "p", plugins.Entry{Text: "before"})
	l.Drop(acme, "p")
	if lines, _, _, _ := kept(l, acme, "p"); lines != 0 {
		t.Errorf("%d lines are left", lines)
	}
	l.Drop(acme, "p")
	text := strings.Repeat("x", plugins.MaxLogLineBytes)
	for i := range 3000 { // of plugins that were deleted while they ran
		p := carrel.PluginName(fmt.Sprintf("gone%d", i))
		l.Drop(acme, p)
		l.Add(acme, p, plugins.Entry{Text: text})
	}
	sum := 0
	for i := range 3000 {
		_, bytes, _, _ := kept(l, acme, carrel.PluginName(fmt.Sprintf("gone%d", i)))
		sum += bytes
	}
	if sum > plugins.MaxLogTenantBytes {
		t.Errorf("%d bytes are kept", sum)
	}
	if lines, _, _, _ := kept(l, acme, "gone2999"); lines != 1 {
		t.Error("the newest line is not kept")
	}
}

func TestAllLogsTogetherAreBounded(t *testing.T) {
	l := newLog(t, 1000)
	text := strings.Repeat("x", plugins.MaxLogLineBytes) // one string, which all lines share
	const tenants = plugins.MaxLogBytes/plugins.MaxLogTenantBytes + 10
	tenant := func(i int) carrel.TenantID { return carrel.TenantID(fmt.Sprintf("t%d", i)) }
	sum := func(i int) (bytes int) {
		for p := range 20 {
			_, n, _, _ := kept(l, tenant(i), carrel.PluginName(fmt.Sprintf("p%d", p)))
			bytes += n
		}
		return bytes
	}
	for i := range tenants {
		for line := range 20 * 60 {
			l.Add(tenant(i), carrel.PluginName(fmt.Sprintf("p%d", line/60)), plugins.Entry{Text: text})
		}
	}
	all := 0
	for i := range tenants {
		all += sum(i)
	}
	if all > plugins.MaxLogBytes || all < plugins.MaxLogBytes*3/4 || sum(0) != 0 || sum(tenants-1) < plugins.MaxLogTenantBytes*3/4 {
		t.Errorf("%d bytes are kept, %d of the tenant that was silent the longest, %d of the newest", all, sum(0), sum(tenants-1))
	}
}
