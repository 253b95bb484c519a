# The image of the released tar files, built by Docker: docker build -t cairn .
FROM rust:1.95-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils ca-certificates gcc libc6-dev make python3
WORKDIR /src
COPY . .
RUN packaging/build "$(dpkg --print-architecture)" /cairn \
 && packaging/bill "$(dpkg --print-architecture)" /cairn.cdx.json /THIRD-PARTY-NOTICES \
 && packaging/rootfs /cairn /cairn.cdx.json /THIRD-PARTY-NOTICES /rootfs

FROM scratch
COPY --from=build /rootfs /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /var/lib/etcd
EXPOSE 2379 2380
# The leader hands over before it ends.
STOPSIGNAL SIGTERM
# No ENTRYPOINT: `docker run IMAGE etcd --name x` and `docker run IMAGE etcdctl get x` name the program, as with etcd's own image.
CMD ["/usr/local/bin/etcd"]
