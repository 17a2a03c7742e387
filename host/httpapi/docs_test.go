package httpapi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/httpapi"
)

// TestTheTableOfErrorsIsComplete holds docs/calling.md against the codes: each
// is there once, on a line that has its status and no other than its codes'.
func TestTheTableOfErrorsIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "calling.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| code | status |")
	if !found {
		t.Fatal("there is no table of codes")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	name, number := regexp.MustCompile("`([a-z_]+)`"), regexp.MustCompile(`\d+`)
	var documented []string
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		var statuses, wanted []string
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			documented = append(documented, m[1])
			code, ok := abi.ParseCode(m[1])
			if !ok {
				t.Errorf("%s is no code", m[1])
				continue
			}
			wanted = append(wanted, strconv.Itoa(httpapi.Status(code)))
		}
		statuses = number.FindAllString(cells[2], -1)
		slices.Sort(statuses)
		slices.Sort(wanted)
		if !slices.Equal(statuses, slices.Compact(wanted)) {
			t.Errorf("the line of%sdocuments the status %v, and it is %v", cells[1], statuses, wanted)
		}
	}
	for _, c := range abi.Codes() {
		n := 0
		for _, d := range documented {
			if d == c.String() {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%v is documented %d times", c, n)
		}
	}
}
