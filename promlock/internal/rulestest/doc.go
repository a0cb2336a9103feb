// Package rulestest tests promlock's alert rules and dashboard with Prometheus' own parser and
// engine. It is a separate module, so that promlock does not depend on them.
package rulestest
