package host_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// shown returns messages as "role:content".
func shown(all []client.Message) []string {
	var out []string
	for _, m := range all {
		out = append(out, m.Role+":"+m.Content)
	}
	return out
}

func TestAWindowIsWhatTheNextCallSends(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "short-memory"))
		for _, msg := range []string{"U1", "U2", "U3", "U4"} {
			acme.Chat(goldfish, "id", "1", "msg", msg)
		}
		key := keyOf(t, acme, "short-memory", "1")
		const method = "com.acme.Goldfish.chat"
		window, err := acme.Client().Window(t.Context(), key, method)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the window", shown(window), "system:You have a short memory", "user:U4", "assistant:A4")
		if window[0].Turn != 0 || window[1].Turn != 4 || window[2].Seq <= window[1].Seq {
			t.Errorf("the window is %+v", window)
		}
		if n := len(messages(t, acme, key)); n != 9 {
			t.Errorf("the history has %d messages", n)
		}
		acme.Chat(goldfish, "id", "1", "msg", "U5")
		same(t, "the next send", env.Model.Send(5), append(shown(window), "user:U5")...)

		path := "/api/v1/memories/" + key + "/messages"
		for query, code := range map[string]abi.Code{
			"?view=window":                               abi.BadRequest,
			"?view=window&method=":                       abi.BadRequest,
			"?view=window&method=chat":                   abi.BadRequest,
			"?view=window&method=short-memory/" + method: abi.BadRequest,
			"?view=all":                                  abi.BadRequest,
			"?view=":                                     abi.BadRequest,
			"?method=" + method:                          abi.BadRequest,
			"?view=window&limit=1&method=" + method:      abi.BadRequest,
			"?view=window&after=&method=" + method:       abi.BadRequest,
			"?view=window&view=window&method=" + method:  abi.BadRequest,
			"?view=window&method=com.acme.Goldfish.swim": abi.NotFound,
			"?view=window&method=com.acme.Shark.chat":    abi.NotFound,
		} {
			if p := acme.Do(http.MethodGet, path+query, "").Problem(t); p.Code != code.String() {
				t.Errorf("%s: %+v", query, p)
			}
		}
	})
}

func TestADeletedTurnIsNeitherSentNorNumberedAgain(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ada := backend.As("ada")
		for _, msg := range []string{"U1", "U2", "U3"} {
			ada.Chat(nice, "id", "1", "msg", msg)
		}
		key := keyOf(t, ada, "nice-and-mean", "1")
		if err := ada.Client().DeleteTurn(t.Context(), key, 2); err != nil {
			t.Fatal(err)
		}
		if err := acme.Client().DeleteTurn(t.Context(), key, 3); err != nil {
			t.Fatal(err)
		}
		ada.Chat(nice, "id", "1", "msg", "U4")
		same(t, "send 4", env.Model.Send(4), sysNice, "user:U1", "assistant:A1", "user:U4")
		last := messages(t, acme, key)
		if turn := last[len(last)-1].Turn; turn != 4 {
			t.Errorf("the new turn has the number %d", turn)
		}
		for _, turn := range []string{"0", "2", "3", "5", "-1", "x", "01x", "9223372036854775808", "1.0"} {
			p := acme.Do(http.MethodDelete, "/api/v1/memories/"+key+"/turns/"+turn, "").Problem(t)
			if p.Code != abi.NotFound.String() {
				t.Errorf("turn %s: %+v", turn, p)
			}
		}
		for _, turn := range []int64{1, 4} {
			if err := acme.Client().DeleteTurn(t.Context(), key, turn); err != nil {
				t.Errorf("turn %d: %v", turn, err)
			}
		}
		same(t, "what is left", acme.Stored("nice-and-mean", "1"), sysNice)
	})
}

func TestAnErasedSubjectLeavesNothingButRecords(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		globex := env.Tenant("globex")
		globex.Install(testenv.Example(t, "nice-and-mean"))
		one := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		two := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		elsewhere := env.Key("globex", client.NewKey{Role: "caller", AssertSubject: true})
		one.As("ada").Chat(nice, "id", "ada-1", "msg", "hello")
		two.As("ada").Chat(nice, "id", "ada-2", "msg", "hello")
		one.As("bob").Chat(nice, "id", "shared", "msg", "hello")
		one.As("ada").Chat(nice, "id", "shared", "msg", "hello")
		one.As("bob").Chat(nice, "id", "bob", "msg", "hello")
		elsewhere.As("ada").Chat(nice, "id", "ada", "msg", "hello")
		session := one.As("ada").Open(client.NewSession{})
		start := time.Now().Add(-time.Minute)

		done, err := acme.Client().EraseSubject(t.Context(), "ada")
		if err != nil || len(done.Evicted) != 3 || done.Histories != 3 {
			t.Fatalf("erased: %+v, %v", done, err)
		}
		for _, e := range done.Evicted {
			if e.Reason != "erased" || e.Plugin != "nice-and-mean" || e.Messages < 3 {
				t.Errorf("it reports %+v", e)
			}
		}
		same(t, "what is left", acme.MemoryIDs("nice-and-mean"), "bob")
		same(t, "another tenant's", globex.MemoryIDs("nice-and-mean"), "ada")
		if _, err := one.As("ada").Client().Session(t.Context(), session.ID); testenv.CodeOf(err) != abi.NotFound {
			t.Errorf("the session: %v", err)
		}
		records, err := acme.Client().Evictions(t.Context(), start, client.ListOptions{})
		if err != nil || len(records.Data) != 3 {
			t.Fatalf("records: %+v, %v", records, err)
		}
		for _, r := range records.Data {
			if r.Reason != "erased" || r.MemoryID != "" || r.Key == "" || r.Plugin != "nice-and-mean" || r.At.Before(start) {
				t.Errorf("a record is %+v", r)
			}
		}
		again, err := acme.Client().EraseSubject(t.Context(), "ada")
		if err != nil || again.Evicted == nil || len(again.Evicted) > 0 || again.Histories != 0 {
			t.Errorf("erased again: %+v, %v", again, err)
		}
		for name, body := range map[string]string{
			"nobody":        `{}`,
			"an empty name": `{"subject":""}`,
			"too long":      `{"subject":"` + strings.Repeat("a", carrel.MaxSubjectBytes+1) + `"}`,
			"a line break":  `{"subject":"a\nb"}`,
			"a number":      `{"subject":7}`,
			"two members":   `{"subject":"a","reason":"asked"}`,
		} {
			if p := acme.Do(http.MethodPost, "/api/v1/subjects/erase", body).Problem(t); p.Code != abi.BadRequest.String() {
				t.Errorf("%s: %+v", name, p)
			}
		}
	})
}

func TestEvictionsSayWhatEndedAndWhy(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		acme.Install(testenv.Example(t, "smallest-scope"))
		if p, err := acme.Client().Evictions(t.Context(), time.Time{}, client.ListOptions{}); err != nil || p.Data == nil || len(p.Data) > 0 {
			t.Errorf("at first: %+v, %v", p, err)
		}
		acme.Chat(nice, "id", "1", "msg", "hello")
		key := keyOf(t, acme, "nice-and-mean", "1")
		acme.End("nice-and-mean", "1")
		acme.Chat(nice, "id", "2", "msg", "hello")
		if _, err := acme.Client().Deactivate(t.Context(), "nice-and-mean"); err != nil {
			t.Fatal(err)
		}
		all, err := client.All(10, func(o client.ListOptions) (client.Page[client.EvictionRecord], error) {
			o.Limit = 1
			return acme.Client().Evictions(t.Context(), time.Time{}, o)
		})
		if err != nil || len(all) != 2 {
			t.Fatalf("records: %+v, %v", all, err)
		}
		if r := all[0]; r.Key != key || r.MemoryID != "1" || r.Reason != "deleted" || r.Scope != "" || r.Messages != 3 || r.Bytes == 0 {
			t.Errorf("what was deleted: %+v", r)
		}
		if r := all[1]; r.MemoryID != "2" || r.Reason != "scope_closed" || r.Scope != "application" || r.Instance == "" {
			t.Errorf("what its scope ended: %+v", r)
		}
		for since, want := range map[time.Time]int{all[1].At: 1, all[1].At.Add(time.Hour): 0, all[0].At.Add(-time.Hour): 2} {
			if p, err := acme.Client().Evictions(t.Context(), since, client.ListOptions{}); err != nil || len(p.Data) != want {
				t.Errorf("since %v: %+v, %v", since, p, err)
			}
		}
		if p, err := env.Tenant("globex").Client().Evictions(t.Context(), time.Time{}, client.ListOptions{}); err != nil || len(p.Data) > 0 {
			t.Errorf("another tenant's: %+v, %v", p, err)
		}
		for _, query := range []string{"?since=yesterday", "?since=", "?since=2026-01-01", "?limit=0", "?after=%20", "?plugin=x"} {
			if p := acme.Do(http.MethodGet, "/api/v1/evictions"+query, "").Problem(t); p.Code != abi.BadRequest.String() {
				t.Errorf("%s: %+v", query, p)
			}
		}
	})
}

func TestAnswersSayWhatTheHistorysLimitTook(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.MessagesPerHistory = 5
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		for i, want := range []int64{0, 0, 2} {
			if got := acme.Chat(nice, "id", "1", "msg", "hello").Trimmed; got != want {
				t.Errorf("turn %d trims %d messages", i+1, got)
			}
		}
		if body := acme.Do(http.MethodPost, "/api/v1/plugins/nice-and-mean/services/com.acme.MyChat/chat", `{"id":"2","msg":"hello"}`).Body; strings.Contains(string(body), "trimmed") {
			t.Errorf("an answer without it is %s", body)
		}
		events := acme.Stream(t.Context(), nice, "id", "1", "msg", "hello").Rest()
		if r := events[len(events)-1].Response; r == nil || r.Trimmed != 2 {
			t.Errorf("the last event is %+v", events[len(events)-1])
		}
		if n := len(acme.Stored("nice-and-mean", "1")); n != 5 {
			t.Errorf("%d messages are stored", n)
		}
	})
}
