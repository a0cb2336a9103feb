package main

import (
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
)

// changed calls wake with the key of every object that a message names. It reads what S3 sends to
// SQS, to EventBridge, and through SNS with raw message delivery, and what MinIO posts. Anything
// else it ignores.
func changed(message []byte, wake func(key string)) {
	type object struct {
		Object struct{ Key string }
	}
	var m struct {
		Records []struct{ S3 object } // of S3 and MinIO
		Detail  object                // of EventBridge
	}
	if json.Unmarshal(message, &m) != nil {
		return
	}
	for _, r := range m.Records {
		if key, err := url.QueryUnescape(r.S3.Object.Key); err == nil {
			wake(key)
		}
	}
	if m.Detail.Object.Key != "" {
		wake(m.Detail.Object.Key)
	}
}

// webhook receives the bucket notifications of a MinIO that knows the token. It answers at once,
// and with success also to what it does not understand, because MinIO would wait for it or send the
// message again.
func webhook(token string, wake func(key string)) http.Handler {
	const enough = 64 << 10
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, enough))
		if err == nil {
			changed(message, wake)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
