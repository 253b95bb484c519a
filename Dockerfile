# Cairn in a container: docker build -t cairn .
FROM rust:1.95-slim AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p cairn && .ci/split target/release/cairn target/dist/cairn

FROM debian:stable-slim
COPY --from=build /src/target/dist/cairn /usr/local/bin/cairn
# Under this name the binary takes etcd's flags and ETCD_* variables directly.
RUN ln -s cairn /usr/local/bin/etcd \
 && useradd --system --create-home --home-dir /var/lib/cairn cairn
USER cairn
WORKDIR /var/lib/cairn
VOLUME /var/lib/cairn
EXPOSE 2379 2380
# The leader hands over before it ends.
STOPSIGNAL SIGTERM
ENTRYPOINT ["etcd"]
CMD ["--data-dir=/var/lib/cairn/data", \
     "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://127.0.0.1:2379"]
