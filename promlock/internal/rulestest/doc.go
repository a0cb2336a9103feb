// Package rulestest tests promlock's alert rules and dashboard with Prometheus' own parser and engine. It is a module of its
// own, so that promlock does not depend on those.
package rulestest
