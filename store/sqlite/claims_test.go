package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

var someClaims = store.ClaimLimits{Claims: 10, Bytes: 1 << 20}

// miscounted are the tenants whose counts are not those of their rows.
const miscounted = `SELECT count(*) FROM
	(SELECT tenant, count(*) AS claims, coalesce(sum(length(sealed)), 0) AS bytes FROM claims GROUP BY tenant) AS rows
	FULL JOIN claim_counts AS counts ON counts.tenant = rows.tenant
	WHERE coalesce(rows.claims, 0) <> coalesce(counts.claims, 0) OR coalesce(rows.bytes, 0) <> coalesce(counts.bytes, 0)`

func TestClaimsAreCountedWhateverBecomesOfThem(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	for _, id := range []carrel.TenantID{acme, "globex"} {
		if err := createTenant(ctx, s, id); err != nil {
			t.Fatal(err)
		}
	}
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	histories, most := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		check := func(err error) {
			t.Helper()
			if code := carrel.CodeOf(err); code != abi.QuotaExceeded && code != abi.OK {
				t.Fatal(err)
			}
		}
		minute := func(what string) time.Time {
			return noon.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, what)) * time.Minute)
		}
		node := rapid.SampledFrom([]string{"run-1", "run-2"})
		drawn := func() store.Claim {
			n := rapid.IntRange(1, 8).Draw(t, "claim")
			return store.Claim{
				ID: [32]byte{byte(n)}, Tenant: []carrel.TenantID{acme, "globex"}[n%2], Subject: []carrel.Subject{"", "ada"}[n/2%2],
				Node: node.Draw(t, "node"), Handler: rapid.Bool().Draw(t, "handler"), At: minute("at"),
			}
		}
		answer := func() store.Answer {
			return store.Answer{
				Claim: [32]byte{byte(rapid.IntRange(1, 9).Draw(t, "claim"))}, At: minute("answered at"),
				Sealed: rapid.SliceOfN(rapid.Byte(), 0, 9000).Draw(t, "sealed"),
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var wrong, claims int
				check(db.QueryRow(miscounted).Scan(&wrong))
				check(db.QueryRow("SELECT count(*) FROM claims").Scan(&claims))
				if wrong != 0 {
					t.Fatalf("%d tenants are miscounted", wrong)
				}
				most = max(most, claims)
			},
			"claim": func(*rapid.T) {
				c := drawn()
				c.Cutoff = minute("cutoff").Add(-3 * time.Minute)
				_, err := s.Claim(ctx, c, store.ClaimLimits{Claims: 3, Bytes: 9000})
				check(err)
			},
			"answer": func(*rapid.T) { check(s.Answer(ctx, answer())) },
			"answer with a turn": func(*rapid.T) {
				histories++
				c, a := commitOf(histories, 0, "hello", "hi"), answer()
				c.Answer = &a
				_, err := s.Commit(ctx, c)
				check(err)
			},
			"release": func(*rapid.T) { check(s.ReleaseClaim(ctx, drawn())) },
			"release those of others": func(t *rapid.T) {
				_, err := s.ReleaseClaims(ctx, node.Draw(t, "node"))
				check(err)
			},
			"forget": func(t *rapid.T) {
				_, err := s.ForgetClaims(ctx, node.Draw(t, "node"), minute("before"), rapid.IntRange(0, 3).Draw(t, "limit"))
				check(err)
			},
			"erase": func(t *rapid.T) {
				_, err := s.EraseSubject(ctx, rapid.SampledFrom([]carrel.TenantID{acme, "globex"}).Draw(t, "tenant"), "ada", noon, rapid.IntRange(1, 3).Draw(t, "limit"))
				check(err)
			},
		})
	})
	if most < 3 {
		t.Errorf("there were never more than %d claims", most)
	}
}

func TestANewClaimCostsTheSameHoweverManyThereAre(t *testing.T) {
	const many = 20_000
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	n := byte(0)
	pages := func(most store.ClaimLimits, code abi.Code) int {
		t.Helper()
		n++
		return must(s.PagesWritten(ctx, func() error {
			_, err := s.Claim(ctx, store.Claim{ID: [32]byte{n}, Tenant: acme, Node: "run-1", At: noon, Cutoff: noon.Add(-time.Hour)}, most)
			wantCode(t, err, code)
			return nil
		}))(t)
	}
	plenty := store.ClaimLimits{Claims: 10 * many, Bytes: 1 << 30}
	pages(plenty, abi.OK) // prepares every statement
	few := pages(plenty, abi.OK)
	fillClaims(t, db, many)
	for what, c := range map[string]struct {
		most store.ClaimLimits
		code abi.Code
	}{
		"a claim": {plenty, abi.OK},
		"one that is refused for its tenant's many": {store.ClaimLimits{Claims: many, Bytes: 1 << 30}, abi.QuotaExceeded},
		"one that is refused for their bytes":       {store.ClaimLimits{Claims: 10 * many, Bytes: many}, abi.QuotaExceeded},
	} {
		// The trees are deeper.
		if got := pages(c.most, c.code); got > 3*few+10 {
			t.Errorf("%s looks at %d pages, and at %d when there are hardly any", what, got, few)
		}
	}
}

// fillClaims makes claims with answers of one byte.
func fillClaims(t *testing.T, db *sql.DB, claims int) {
	t.Helper()
	_, err := db.Exec(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
		INSERT INTO claims (id, fingerprint, tenant, subject, node, handler, at, sealed)
		SELECT randomblob(32), zeroblob(32), ?, 'ada', 'run-1', 0, ?, x'00' FROM n`, claims, acme, noon.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
}
