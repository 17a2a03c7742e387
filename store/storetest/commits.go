package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// What a commit does beyond storing one turn.
var commitCases = []testCase{
	{"a commit says which generation it changed and the number of its last turn", commitReports},
	{"several turns are stored in order, each with its origin and time", commitSeveral},
	{"seeds go into a history that has no turns, and into no other", commitSeeds},
	{"what left the window is deleted, but never what the commit appends", commitDrops},
	{"of a history that is too long the oldest turns go, whole, and never the newest", commitTrims},
	{"the newest turn is the newest that is there", commitTrimsNewest},
	{"only what is deleted for the sake of the bound counts as trimmed", commitDropsAndTrims},
	{"a token rate is kept until another comes", commitTokenRate},
	{"a commit answers a claim with what it trimmed", commitAnswers},
	{"a commit that comes too late answers and deletes nothing", commitLate},
	{"random changes do what a plain list of turns does", commitModel},
}

func newTurns(turns ...[]carrel.Message) []store.NewTurn {
	var list []store.NewTurn
	for _, messages := range turns {
		list = append(list, store.NewTurn{Messages: messages})
	}
	return list
}

// fill commits n turns of two messages each, "u1", "a1" and so on, in one
// change, and returns the generation.
func fill(t *testing.T, s store.Store, si store.ScopeInstance, k carrel.MemoryKey, n int) int64 {
	t.Helper()
	c := commitOf(si, k, 0)
	for i := range n {
		c.Turns = append(c.Turns, store.NewTurn{Messages: turnOf(fmt.Sprint("u", i+1), fmt.Sprint("a", i+1))})
	}
	return must(s.Commit(context.Background(), c))(t).Generation
}

// wantCounted checks that a history counts what it holds.
func wantCounted(t rapid.TB, s store.Store, k carrel.MemoryKey) {
	t.Helper()
	ctx := context.Background()
	h, err := s.History(ctx, k.Tenant, handleOf(k), nil, store.Cutoff{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Messages(ctx, k, h.Generation, -1, store.MessageLimit{Messages: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	list, size, inTurns := page.Messages, int64(0), int64(0)
	for _, m := range list {
		size += m.Size()
		if m.Turn > 0 {
			inTurns++
		}
	}
	if h.Messages != int64(len(list)) || h.Bytes != size {
		t.Errorf("the history counts %d messages and %d bytes, and holds %d and %d", h.Messages, h.Bytes, len(list), size)
	}
	v, err := s.View(ctx, k, store.ViewLimit{})
	if err != nil {
		t.Fatal(err)
	}
	if v.Stored != inTurns || v.LastTurn != h.LastTurn {
		t.Errorf("a view tells of %d messages and turn %d, want %d and %d", v.Stored, v.LastTurn, inTurns, h.LastTurn)
	}
}

func commitReports(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	first := must(s.Commit(ctx, commitOf(r, k, 0, "u1", "a1")))(t)
	wantSame(t, "first", first, store.Committed{Generation: history(t, s, k).Generation, LastTurn: 1})
	c := commitOf(r, k, first.Generation)
	c.Turns = newTurns(turnOf("u2", "a2"), turnOf("u3", "a3"))
	wantSame(t, "second", must(s.Commit(ctx, c))(t), store.Committed{Generation: first.Generation, LastTurn: 3})
	system := "S"
	c = commitOf(r, k, first.Generation)
	c.System = &system
	wantSame(t, "without a turn", must(s.Commit(ctx, c))(t), store.Committed{Generation: first.Generation, LastTurn: 3})
	wantSame(t, "of an empty history", must(s.Commit(ctx, commitOf(r, keyOf(acme, "2"), 0)))(t),
		store.Committed{Generation: history(t, s, keyOf(acme, "2")).Generation})
}

func commitSeveral(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	c := commitOf(requestScope(acme, "r"), k, 0)
	c.Turns = []store.NewTurn{
		{Messages: turnOf("u1", "a1"), Origin: carrel.OriginImport, At: noon.Add(-time.Hour)},
		{Messages: toolTurn(), Origin: carrel.OriginPlugin},
		{Messages: turnOf("u3", "a3")},
	}
	done := must(s.Commit(ctx, c))(t)
	var want []store.StoredMessage
	for i, turn := range []struct {
		messages []carrel.Message
		origin   carrel.Origin
		at       time.Time
	}{
		{turnOf("u1", "a1"), carrel.OriginImport, storedNoon.Add(-time.Hour)},
		{toolTurn(), carrel.OriginPlugin, storedNoon},
		{turnOf("u3", "a3"), carrel.OriginModel, storedNoon},
	} {
		for _, m := range turn.messages {
			want = append(want, store.StoredMessage{
				Message: m, Seq: int64(len(want)) + 1, Turn: int64(i) + 1, At: turn.at, Origin: turn.origin,
			})
		}
	}
	wantSame(t, "messages", must(s.Messages(ctx, k, done.Generation, -1, store.MessageLimit{Messages: 100}))(t).Messages, want)
	wantCounted(t, s, k)
	if h := history(t, s, k); !h.LastUsedAt.Equal(storedNoon) {
		t.Errorf("an imported turn's time is when the history was used last: %v", h.LastUsedAt)
	}
}

func commitSeeds(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	seeded := func(generation int64, texts ...string) store.Committed {
		t.Helper()
		c := commitOf(r, k, generation, texts...)
		c.Seeds = newTurns(turnOf("s1", "t1"), turnOf("s2", "t2"))
		return must(s.Commit(ctx, c))(t)
	}
	first := seeded(0, "u", "a")
	wantContents(t, s, k, "s1", "t1", "s2", "t2", "u", "a")
	if first.LastTurn != 3 {
		t.Errorf("the last turn is %d", first.LastTurn)
	}
	seeded(first.Generation, "v", "b")
	wantContents(t, s, k, "s1", "t1", "s2", "t2", "u", "a", "v", "b")
	wantCounted(t, s, k)

	// A system message, or turns that are not there any more, are no turns.
	for n := range int64(4) {
		noError(t, s.DeleteTurn(ctx, k, first.Generation, n+1))
	}
	system := "S"
	c := commitOf(r, k, first.Generation)
	c.System = &system
	noError(t, commit(ctx, s, c))
	wantContents(t, s, k, "S")
	if again := seeded(first.Generation, "w", "c"); again.LastTurn != 7 {
		t.Errorf("the last turn is %d", again.LastTurn)
	}
	wantContents(t, s, k, "S", "s1", "t1", "s2", "t2", "w", "c")
	wantCounted(t, s, k)
}

func commitDrops(t *testing.T, s store.Store) {
	r := requestScope(acme, "r")
	for i, c := range []struct {
		name   string
		dropTo int64
		want   []string
	}{
		{"none", 0, []string{"S", "u1", "a1", "u2", "a2", "u3", "a3", "new", "turn"}},
		{"one turn", 1, []string{"S", "u2", "a2", "u3", "a3", "new", "turn"}},
		{"all that there were", 3, []string{"S", "new", "turn"}},
		{"the number of the new turn", 4, []string{"S", "new", "turn"}},
		{"more than there are", 100, []string{"S", "new", "turn"}},
		{"a negative number", -1, []string{"S", "u1", "a1", "u2", "a2", "u3", "a3", "new", "turn"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))
			drop := commitOf(r, k, fill(t, s, r, k, 3), "new", "turn")
			system := "S"
			drop.System, drop.DropTo = &system, c.dropTo
			done := must(s.Commit(context.Background(), drop))(t)
			wantContents(t, s, k, c.want...)
			wantCounted(t, s, k)
			if done.Trimmed != 0 || done.LastTurn != 4 {
				t.Errorf("the commit came to %+v", done)
			}
		})
	}
	k := keyOf(acme, "first")
	first := commitOf(r, k, 0, "u", "a")
	first.Seeds, first.DropTo = newTurns(turnOf("s", "t")), 100
	noError(t, commit(context.Background(), s, first))
	wantContents(t, s, k, "s", "t", "u", "a")
}

func commitTrims(t *testing.T, s store.Store) {
	r := requestScope(acme, "r")
	for i, c := range []struct {
		name    string
		most    int64
		want    []string
		trimmed int64
	}{
		{"it is not bound", 0, []string{"S", "u1", "a1", "u2", "a2", "new", "turn", "more"}, 0},
		{"it fits just so", 8, []string{"S", "u1", "a1", "u2", "a2", "new", "turn", "more"}, 0},
		{"it is one too long", 7, []string{"S", "u2", "a2", "new", "turn", "more"}, 2},
		{"the system message counts", 6, []string{"S", "u2", "a2", "new", "turn", "more"}, 2},
		{"turns are not cut", 5, []string{"S", "new", "turn", "more"}, 4},
		{"only the newest fits", 4, []string{"S", "new", "turn", "more"}, 4},
		{"not even the newest fits", 1, []string{"S", "new", "turn", "more"}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))
			trim := commitOf(r, k, fill(t, s, r, k, 2), "new", "turn", "more")
			system := "S"
			trim.System, trim.Most = &system, c.most
			done := must(s.Commit(context.Background(), trim))(t)
			wantContents(t, s, k, c.want...)
			wantCounted(t, s, k)
			wantSame(t, "committed", done, store.Committed{Generation: trim.Generation, LastTurn: 3, Trimmed: c.trimmed})
			// Numbers go on where they were.
			noError(t, commit(context.Background(), s, commitOf(r, k, trim.Generation, "next")))
			list := must(s.Messages(context.Background(), k, trim.Generation, 0, store.MessageLimit{Messages: 100}))(t).Messages
			if last := list[len(list)-1]; last.Seq != 8 || last.Turn != 4 {
				t.Errorf("the next message is %+v", last)
			}
		})
	}
	k := keyOf(acme, "first")
	first := commitOf(r, k, 0)
	first.Seeds, first.Turns, first.Most = newTurns(turnOf("s", "t")), newTurns(turnOf("u1", "a1"), turnOf("u2", "a2")), 3
	if done := must(s.Commit(context.Background(), first))(t); done.Trimmed != 4 || done.LastTurn != 3 {
		t.Errorf("the first commit came to %+v", done)
	}
	wantContents(t, s, k, "u2", "a2")
	wantCounted(t, s, k)
}

func commitTrimsNewest(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := fill(t, s, r, k, 3)
	noError(t, s.DeleteTurn(ctx, k, generation, 3))
	c := commitOf(r, k, generation)
	c.Most = 1
	if done := must(s.Commit(ctx, c))(t); done.Trimmed != 2 || done.LastTurn != 3 {
		t.Errorf("the commit came to %+v", done)
	}
	wantContents(t, s, k, "u2", "a2")
	wantCounted(t, s, k)
	noError(t, s.DeleteTurn(ctx, k, generation, 2))
	if done := must(s.Commit(ctx, c))(t); done.Trimmed != 0 {
		t.Errorf("of an empty history %d messages were trimmed", done.Trimmed)
	}
	wantContents(t, s, k)
}

func commitDropsAndTrims(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	c := commitOf(r, k, fill(t, s, r, k, 5), "u6", "a6")
	c.DropTo, c.Most = 2, 5
	if done := must(s.Commit(context.Background(), c))(t); done.Trimmed != 4 {
		t.Errorf("%d messages were trimmed", done.Trimmed)
	}
	wantContents(t, s, k, "u5", "a5", "u6", "a6")
	wantCounted(t, s, k)
}

func commitTokenRate(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := int64(0)
	for i, c := range []struct{ given, want int }{{0, 0}, {250, 250}, {0, 250}, {310, 310}} {
		rate := commitOf(r, k, generation, fmt.Sprint("u", i), "a")
		rate.TokenRate = c.given
		generation = must(s.Commit(ctx, rate))(t).Generation
		if v := must(s.View(ctx, k, store.ViewLimit{}))(t); v.TokenRate != c.want {
			t.Errorf("after a rate of %d it is %d, want %d", c.given, v.TokenRate, c.want)
		}
	}
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	say(t, s, r, k, "anew", "yes")
	if v := must(s.View(ctx, k, store.ViewLimit{}))(t); v.TokenRate != 0 {
		t.Errorf("a new history has the rate %d", v.TokenRate)
	}
}

func chatClaim() store.Claim {
	return store.Claim{
		ID: carrel.DigestOf([]byte("claim")), Fingerprint: carrel.DigestOf([]byte("request")),
		Tenant: acme, Subject: "ada", Node: node, At: noon,
	}
}

func commitAnswers(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	claim := chatClaim()
	c := commitOf(r, k, fill(t, s, r, k, 2), "u", "a")
	c.Most, c.Answer = 4, &store.Answer{Claim: claim.ID, Sealed: []byte("sealed"), At: noon}
	// Nobody claimed it: the turn is stored, and that is all.
	noError(t, commit(ctx, s, c))
	wantContents(t, s, k, "u2", "a2", "u", "a")
	if got := must(s.Claim(ctx, claim, manyClaims))(t); got.State != store.ClaimTaken {
		t.Errorf("the claim is %+v", got)
	}
	c.Most = 2
	c.Answer.Sealed = []byte("sealed with a trim")
	noError(t, commit(ctx, s, c))
	copy(c.Answer.Sealed, "changed")
	want := store.Claimed{State: store.ClaimAnswered, Sealed: []byte("sealed with a trim"), Trimmed: 4}
	wantSame(t, "claim", must(s.Claim(ctx, claim, manyClaims))(t), want)
	// An answer is not replaced.
	c.Answer.Sealed = []byte("another")
	noError(t, commit(ctx, s, c))
	wantSame(t, "claim", must(s.Claim(ctx, claim, manyClaims))(t), want)
}

func commitLate(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	claim := chatClaim()
	must(s.Claim(ctx, claim, manyClaims))(t)
	c := commitOf(r, k, fill(t, s, r, k, 2)+1, "u", "a")
	c.DropTo, c.Most, c.TokenRate = 1, 1, 300
	c.Seeds = newTurns(turnOf("s", "t"))
	c.Answer = &store.Answer{Claim: claim.ID, Sealed: []byte("sealed"), At: noon}
	wantCode(t, commit(ctx, s, c), abi.ScopeClosed)
	wantContents(t, s, k, "u1", "a1", "u2", "a2")
	wantCounted(t, s, k)
	if got := must(s.Claim(ctx, claim, manyClaims))(t); got.State != store.ClaimTaken {
		t.Errorf("the claim is %+v", got)
	}
	if v := must(s.View(ctx, k, store.ViewLimit{}))(t); v.TokenRate != 0 {
		t.Errorf("the rate is %d", v.TokenRate)
	}
}
