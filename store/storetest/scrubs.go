package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

var scrubCases = []testCase{
	{"a store that was never scrubbed says so", scrubNever},
	{"a scrub is remembered, and is due again when something is deleted", scrubDue},
	{"whatever deletes content makes a scrub due", scrubWhatever},
}

func lastScrub(t *testing.T, s store.Store) store.Scrub {
	t.Helper()
	return must(s.LastScrub(context.Background()))(t)
}

func scrubNever(t *testing.T, s store.Store) {
	wantSame(t, "the last scrub", lastScrub(t, s), store.Scrub{})
	say(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "hello", "hi")
	wantSame(t, "the last scrub", lastScrub(t, s), store.Scrub{})
}

func scrubDue(t *testing.T, s store.Store) {
	ctx := context.Background()
	kept := keyOf(acme, "kept")
	say(t, s, requestScope(acme, "other"), kept, "hello", "hi")
	say(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "hello", "hi")
	closeScope(t, s, "r")
	if before := lastScrub(t, s); !before.Due || !before.At.IsZero() {
		t.Errorf("before: %+v", before)
	}
	for n := range 2 {
		at := noon.Add(time.Duration(n) * time.Hour)
		done := must(s.Scrub(ctx, at))(t)
		if !done.At.Equal(storedNoon.Add(time.Duration(n)*time.Hour)) || done.Due {
			t.Errorf("the scrub is %+v", done)
		}
		wantSame(t, "the last scrub", lastScrub(t, s), done)
	}
	wantContents(t, s, kept, "hello", "hi")
	closeScope(t, s, "other")
	if after := lastScrub(t, s); !after.Due || after.At.IsZero() {
		t.Errorf("after another deletion: %+v", after)
	}
	if done := must(s.Scrub(ctx, noon))(t); done.Due {
		t.Errorf("the scrub is %+v", done)
	}
}

func scrubWhatever(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	k := keyOf(acme, "1")
	createSession(t, s, sessionOf(acme, ses))
	say(t, s, app, k, "hello", "hi")
	say(t, s, app, k, "deleted", "turn")
	say(t, s, app, keyOf(acme, "old"), "hello", "hi")
	generation := history(t, s, k).Generation
	system := func(text string) {
		c := commitOf(app, k, generation)
		c.System = &text
		noError(t, commit(ctx, s, c))
	}
	system("the first")
	claim(t, s, claimOf(1))
	claim(t, s, claimOf(2))
	answer(t, s, 1)
	if lastScrub(t, s).Due {
		t.Fatal("a scrub is due although nothing was deleted")
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a deleted turn", func() error { return s.DeleteTurn(ctx, k, generation, 2) }},
		{"a replaced system message", func() error { system("the second"); return nil }},
		{"a trim", func() error {
			c := commitOf(app, k, generation, "again", "yes")
			c.Most = 1
			return commit(ctx, s, c)
		}},
		{"a released claim", func() error { return s.ReleaseClaim(ctx, claimOf(2)) }},
		{"a forgotten claim", func() error { _, err := s.ForgetClaims(ctx, node, noon, 10); return err }},
		{"an erased subject", func() error { _, err := s.EraseSubject(ctx, acme, "ada", noon, 1000); return err }},
		{"forgotten records", func() error { _, err := s.ForgetEvictions(ctx, noon.Add(time.Hour), 10); return err }},
		{"an expired history", func() error {
			_, err := s.Touch(ctx, touchOf(app, keyOf(acme, "another")))
			if err == nil {
				_, err = s.ExpireHistories(ctx, noon, noon, 10)
			}
			return err
		}},
		{"a deleted history", func() error {
			_, err := s.Touch(ctx, touchOf(app, k))
			if err == nil {
				_, err = s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
			}
			return err
		}},
		{"a closed scope", func() error {
			say(t, s, requestScope(acme, "r"), k, "hello", "hi")
			closeScope(t, s, "r")
			return nil
		}},
	} {
		noError(t, step.do())
		if !lastScrub(t, s).Due {
			t.Errorf("after %s no scrub is due", step.what)
		}
		if done := must(s.Scrub(ctx, noon))(t); done.Due {
			t.Errorf("after %s the scrub is %+v", step.what, done)
		}
	}
}
