#!/bin/sh
# Print the token that "lab login" has stored.
token=$(cat "$HOME/.cache/lab-token") || {
    echo "Type: lab login" >&2
    exit 1
}
cat <<END
{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {"token": "$token"}}
END
