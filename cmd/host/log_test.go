package main

import (
	"testing"
	"time"
)

func TestALineHasItsDateUnlessItIsOfToday(t *testing.T) {
	now := time.Date(2026, 3, 4, 0, 10, 0, 0, time.Local)
	for name, c := range map[string]struct {
		ago  time.Duration
		want string
	}{
		"a minute ago":             {time.Minute, "00:09:00"},
		"before midnight":          {20 * time.Minute, "2026-03-03 23:50:00"},
		"the same hour, last year": {365 * 24 * time.Hour, "2025-03-04 00:10:00"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clock(now.Add(-c.ago).UTC(), now); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
