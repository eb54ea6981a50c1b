# syntax=docker/dockerfile:1

# Pin both by digest for a release: --build-arg RUST_IMAGE=rust:1.89-slim-trixie@sha256:…
ARG RUST_IMAGE=rust:1.89-slim-trixie
ARG BASE_IMAGE=debian:13-slim

FROM ${RUST_IMAGE} AS build
WORKDIR /pliant
COPY . .
RUN e2e/image/build /out

FROM ${BASE_IMAGE}
# The newest LVM that the distribution has; the list of packages is the one that `pliant doctor` checks.
COPY e2e/image/packages e2e/image/install /usr/local/share/pliant/
RUN /usr/local/share/pliant/install
COPY --from=build /out/pliant /usr/local/bin/pliant
COPY LICENSE /usr/share/doc/pliant/copyright
# Root: mounting file systems and changing device-mapper tables need CAP_SYS_ADMIN in the host's own
# user namespace, and the nodes of disks belong to root.
USER 0:0
ENTRYPOINT ["/usr/local/bin/pliant"]
CMD ["standalone"]
