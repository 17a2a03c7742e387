package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
)

// exchange is one request and its answer, and what the edge finds out about
// them on the way. The outermost middleware makes it; it belongs to the
// goroutine of the request and ends with it.
type exchange struct {
	echo.Context
	control *http.ResponseController

	id     string
	code   string         // of the failure; "" as long as there is none
	caller *carrel.Caller // nil as long as it is not known
	ticket *ticket        // that the caller showed, or nil
	body   int64          // bytes that the body took of the budget
	module int64          // bytes that it took of the uploads' as well

	headers [3]string // of every answer: the values, so that they need no memory of their own
}

func newExchange(c echo.Context, id string) *exchange {
	x := &exchange{Context: c, control: http.NewResponseController(c.Response()), id: id}
	x.headers = [...]string{id, "nosniff", "no-store"}
	h := c.Response().Header()
	for i, name := range [...]string{echo.HeaderXRequestID, "X-Content-Type-Options", "Cache-Control"} {
		h[name] = x.headers[i : i+1 : i+1]
	}
	return x
}

// exchangeOf returns the exchange that a handler was given.
func exchangeOf(c echo.Context) *exchange {
	if x, ok := c.(*exchange); ok {
		return x
	}
	return &exchange{Context: c, control: http.NewResponseController(c.Response())} // no middleware ran
}

// requestID returns the request's id, which is also its scope's.
func requestID(c echo.Context) string { return exchangeOf(c).id }

// note remembers the code of a failed request for the log.
func note(c echo.Context, code string) { exchangeOf(c).code = code }

// caller returns who the middleware found out calls.
func caller(c echo.Context) carrel.Caller {
	if who := exchangeOf(c).caller; who != nil {
		return *who
	}
	return carrel.Caller{}
}
