package sqlite

import (
	"context"
)

// markDeleted says that this change deletes what somebody said: the next scrub
// has something to take off the disk. The row is written only when that is
// news, so that a busy host does not pay for it with every request.
func markDeleted(ctx context.Context, q *session) error {
	_, err := q.exec(ctx, "UPDATE meta SET scrub_due = 1 WHERE scrub_due = 0")
	return err
}
