package guard

// clockMonotonic is CLOCK_MONOTONIC in NetBSD's <sys/time.h>, which x/sys/unix does not have.
const clockMonotonic = 3
