package idempotency

// MostReleases is how many releases are tried in the background at once.
const MostReleases = mostReleases
