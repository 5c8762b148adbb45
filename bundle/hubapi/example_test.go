package hubapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// An agent posts reports, and a hub answers with a receipt.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc(hubapi.ReportsPattern, func(w http.ResponseWriter, r *http.Request) {
		var request hubapi.Reports
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, hubapi.MaxRequestBytes)).Decode(&request); err != nil {
			code := hubapi.CodeBadRequest
			w.WriteHeader(code.Status())
			_ = json.NewEncoder(w).Encode(hubapi.Error{Code: code, Message: err.Error()})
			return
		}
		fmt.Println("reports of", r.PathValue("uid"))
		_ = json.NewEncoder(w).Encode(hubapi.Receipt{Accepted: len(request.Reports), Pace: hubapi.Pace{ReportsPerMinute: 600}})
	})
	hub := httptest.NewServer(mux)
	defer hub.Close()

	address, err := hubapi.ReportsURL(hub.URL, "uid-plant-7")
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(hubapi.Reports{Reports: []json.RawMessage{json.RawMessage(`{"payloadType": "…"}`)}})
	if err != nil {
		panic(err)
	}
	answer, err := http.Post(address, hubapi.ContentType, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var receipt hubapi.Receipt
	if err := json.NewDecoder(answer.Body).Decode(&receipt); err != nil {
		panic(err)
	}
	fmt.Println(receipt.Accepted, "accepted, next in", receipt.Pace.Pause(1, time.Minute))
	// Output:
	// reports of uid-plant-7
	// 1 accepted, next in 100ms
}
