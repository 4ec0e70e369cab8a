# The server image: the locked dependencies, the server and the reporter (whose reader of log lines the server uses,
# and which deploy/runtimes copies into training pods), nothing else, as a user without rights.
FROM docker.io/library/python:3.14-slim AS build
WORKDIR /src
COPY requirements/server.txt requirements/build.txt requirements/
RUN python -m venv /opt/visibility \
 && /opt/visibility/bin/pip install --no-cache-dir --require-hashes -r requirements/server.txt \
 && pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY openapi openapi
COPY visibility_api visibility_api
COPY reporter reporter
# Without build isolation, which would fetch whatever setuptools is newest, unlocked.
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels ./reporter . \
 && /opt/visibility/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM docker.io/library/python:3.14-slim
COPY --from=build /opt/visibility /opt/visibility
USER 65532:65532
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
EXPOSE 10250
ENTRYPOINT ["/opt/visibility/bin/visibility-api"]
CMD ["serve"]
