package cache_test

import (
	"slices"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/cache"
)

// TestAnEntryStaysWhileSomebodyHasItAndNoLonger has an entry in several hands
// at once, of a cache with room for one only.
func TestAnEntryStaysWhileSomebodyHasItAndNoLonger(t *testing.T) {
	const mine, other = "mine", "other"
	for name, held := range map[string]func(t *testing.T, c *cache.Cache) []*cache.Entry{
		"one wrote it": func(t *testing.T, c *cache.Cache) []*cache.Entry {
			return []*cache.Entry{publish(t, c, mine)}
		},
		"two wrote it": func(t *testing.T, c *cache.Cache) []*cache.Entry {
			return []*cache.Entry{publish(t, c, mine), publish(t, c, mine)}
		},
		"one wrote it over what another reads": func(t *testing.T, c *cache.Cache) []*cache.Entry {
			publish(t, c, mine).Give()
			return []*cache.Entry{take(t, c, mine, "."), publish(t, c, mine)}
		},
		"one found it damaged that another still has, and wrote it again": func(t *testing.T, c *cache.Cache) []*cache.Entry {
			publish(t, c, mine).Give()
			reader := take(t, c, mine, ".")
			c.Drop(mine)
			return []*cache.Entry{reader, publish(t, c, mine)}
		},
		"two read it": func(t *testing.T, c *cache.Cache) []*cache.Entry {
			publish(t, c, mine).Give()
			return []*cache.Entry{take(t, c, mine, "."), take(t, c, mine, ".")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, c, _ := empty(t, 2)
			for i, e := range held(t, c) {
				publish(t, c, other).Give() // one of the two must go
				if got := names(t, dir); !slices.Equal(got, []string{mine}) {
					t.Errorf("before it is given the %d. time there is %q", i+1, got)
				}
				e.Give()
			}
			publish(t, c, other).Give()
			if got := names(t, dir); !slices.Equal(got, []string{other}) {
				t.Errorf("when nobody has it any more there is %q", got)
			}
		})
	}
}

// publish makes an entry of two bytes.
func publish(t *testing.T, c *cache.Cache, name string) *cache.Entry {
	t.Helper()
	e, err := c.Publish(filled(t, c, "file"), name, ".")
	if err != nil {
		t.Fatal(err)
	}
	return e
}
