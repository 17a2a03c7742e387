package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// unsentWait is how long an answer waits for room. Whoever has some gives it
// back within limits.writeTimeout, which is longer than a client should wait
// to hear that there is none.
const unsentWait = 2 * time.Second

// newUnsent makes room for all answers that are being made or sent, in bytes.
func newUnsent(l Limits) *budget { return newBudget(l.UnsentBytes, max(l.UnsentBytes/2, 1)) }

// unsent is what one answer has of the room for answers. It belongs to the
// goroutine of its request, which releases it.
type unsent struct {
	of     *budget
	limit  int64 // all of the room
	tenant carrel.TenantID
	held   int64
}

func (a *API) unsentOf(c echo.Context) *unsent {
	return &unsent{of: a.unsent, limit: a.cfg.Limits.UnsentBytes, tenant: caller(c).Tenant}
}

// hold takes or gives back room, so that the answer has that many bytes of it.
// One that needs more than a tenant ever has is let in when that has nothing
// else. Errors: overloaded (unsentBytes), and that of ctx; what was held stays.
func (u *unsent) hold(ctx context.Context, size int64) error {
	size = min(size, u.of.most)
	if size <= u.held {
		u.of.release(u.tenant, u.held-size)
		u.held = size
		return nil
	}
	err := u.of.acquireWithin(ctx, unsentWait, u.tenant, size-u.held)
	switch {
	case err == nil:
		u.held = size
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("room for an answer: %w", ctx.Err())
	default:
		return &carrel.Error{
			Op: "httpapi.answer", Code: abi.Overloaded, Limit: "unsentBytes", Err: err, Msg: fmt.Sprintf(
				"answers of %d bytes in all are on their way, or of %d to this tenant; read answers as they come, or the host's operator can raise `limits.unsentBytes`",
				u.limit, u.of.most),
		}
	}
}

func (u *unsent) release() {
	u.of.release(u.tenant, u.held)
	u.held = 0
}

// answer answers with a value, whose bytes count against limits.unsentBytes.
func (a *API) answer(c echo.Context, v any) error {
	out := a.unsentOf(c)
	defer out.release()
	return out.answer(c, v)
}

// answerJSON is answer for what is encoded already, without the end of its line.
func (a *API) answerJSON(c echo.Context, b []byte) error {
	out := a.unsentOf(c)
	defer out.release()
	return out.send(c, echo.MIMEApplicationJSON, append(b[:len(b):len(b)], '\n'))
}

// answer is API.answer for an answer that has some room already.
func (u *unsent) answer(c echo.Context, v any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return u.send(c, echo.MIMEApplicationJSON, b.Bytes())
}

// send answers with bytes. They are not held twice: room for them may be there
// already.
func (u *unsent) send(c echo.Context, kind string, b []byte) error {
	if err := u.hold(c.Request().Context(), int64(len(b))); err != nil {
		return err
	}
	return c.Blob(http.StatusOK, kind, b)
}
