package siege_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestAnUploadWhoseCodeFailsIsNotTheHostsFault uploads all modules whose code
// fails as it is tried: none is answered as a failure of the host, and none is
// an error in its operator's log.
func TestAnUploadWhoseCodeFailsIsNotTheHostsFault(t *testing.T) {
	s := besiege(t)
	tried := 0
	for _, m := range hostile.Modules() {
		runs := strings.HasPrefix(m.Name, abi.InitializeExport+" ") || strings.HasPrefix(m.Name, abi.DescribeExport+" ") || strings.HasPrefix(m.Name, "the start function ")
		if !runs || m.Code == abi.OK || m.Slow && !strict {
			continue
		}
		tried++
		t.Run(m.Name, func(t *testing.T) {
			_, err := s.mallory.Upload(t.Context(), m.Bytes(), client.UploadOptions{})
			p, ok := errors.AsType[*client.Problem](err)
			if !ok || p.Status != http.StatusUnprocessableEntity || p.Code != m.Code.String() || p.Limit != m.Limit || p.GuestCode != "" {
				t.Errorf("got %v, want %v and the limit %q", err, m.Code, m.Limit)
			}
		})
	}
	if tried < 10 {
		t.Errorf("only %d modules were uploaded", tried)
	}
	for line := range strings.Lines(testenv.Read(t, s.log)) {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("the log has %s", line)
		}
	}
}
