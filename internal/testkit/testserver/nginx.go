package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartNginx starts nginx as a proxy in front of the server at the URL upstream for one test, and
// returns its URL. directives go into its location, such as "proxy_set_header Accept-Encoding
// gzip;". Debian's package is nginx-light. Where nginx is not installed, the test is [Missing] an
// nginx.
func StartNginx(tb testing.TB, upstream, directives string) (url string) {
	tb.Helper()
	SkipIfShort(tb)
	program := debianProgram(tb, "nginx", "nginx-light")
	addr, err := freeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
	access_log off; client_max_body_size 0;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen %s;
		location / {
			proxy_pass %s; proxy_http_version 1.1; proxy_set_header Host $http_host;
			%s
		}
	}
}
`, addr, upstream, directives)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	run(tb, exec.Command(program, "-p", dir, "-c", config, "-e", filepath.Join(dir, "error.log")))
	listens(tb, addr, func() []byte {
		log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
		return log
	})
	return "http://" + addr
}
