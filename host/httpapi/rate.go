package httpapi

import "time"

// burst is how many seconds' worth may come at once.
const burst = 10

// rate is a bucket that fills at a number of tokens a second. It has one user
// at a time.
type rate struct {
	perSecond float64
	tokens    float64
	at        time.Time
}

func newRate(perSecond int, now time.Time) rate {
	return rate{perSecond: float64(perSecond), tokens: float64(perSecond) * burst, at: now}
}

// allow takes a token, if there is one.
func (r *rate) allow(now time.Time) bool {
	r.tokens = min(r.tokens+now.Sub(r.at).Seconds()*r.perSecond, r.perSecond*burst)
	r.at = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}
