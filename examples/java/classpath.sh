# The class path of the tour, from Debian's packages; to be sourced.
jars=(grpc-api grpc-stub grpc-protobuf grpc-protobuf-lite grpc-core grpc-context grpc-netty protobuf protobuf-util guava gson
  perfmark-api geronimo-annotation-1.3-spec netty-buffer netty-codec netty-codec-http netty-codec-http2 netty-common
  netty-handler netty-handler-proxy netty-resolver netty-tcnative netty-transport)
CLASSPATH=$(printf ":/usr/share/java/%s.jar" "${jars[@]}")
export CLASSPATH="$PWD/build${CLASSPATH}"
