// Command probe asks a URL four times a second and prints what came of it. It shows what a cluster test can do.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: time.Second}
	for range time.Tick(250 * time.Millisecond) {
		resp, err := client.Get(os.Getenv("URL"))
		if err != nil {
			fmt.Println("error")
			continue
		}
		resp.Body.Close()
		fmt.Println("ok", resp.StatusCode)
	}
}
