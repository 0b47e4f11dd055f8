/* Preloaded into commands whose peers are caught: a connection to a port that another node of the run listens on is led
 * through the link between the two. Who listens where, and which link that is, the harness knows: it is asked at every
 * connect(), over a socket of its own. Where it does not answer, everything is as if this were not here. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

typedef int (*connect_function)(int, const struct sockaddr *, socklen_t);

static int really_connect(int fd, const struct sockaddr *address, socklen_t length) {
    static connect_function real;
    if (!real)
        real = (connect_function)dlsym(RTLD_NEXT, "connect");
    return real(fd, address, length);
}

/* host and port of an address, as text and number; a v4 address within v6 as v4. 0: it has none. */
static int where(const struct sockaddr *address, socklen_t length, char host[INET6_ADDRSTRLEN]) {
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, INET6_ADDRSTRLEN);
        return ntohs(v4->sin_port);
    }
    if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
            inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, host, INET6_ADDRSTRLEN);
        else
            inet_ntop(AF_INET6, &v6->sin6_addr, host, INET6_ADDRSTRLEN);
        return ntohs(v6->sin6_port);
    }
    return 0;
}

/* The port of the link, on 127.0.0.1; 0: there is none, or nobody answers. */
static int asked(const char *host, int port) {
    const char *name = getenv("DILOCO_CHAOS_CATCHER"), *node = getenv("DILOCO_CHAOS_NODE");
    struct sockaddr_un harness = {.sun_family = AF_UNIX};
    if (!name || !node || strlen(name) > sizeof harness.sun_path - 2)
        return 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), answer = 0;
    if (fd < 0)
        return 0;
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    memcpy(harness.sun_path + 1, name, strlen(name)); /* a leading zero byte: no file */
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    char text[256];
    int size = snprintf(text, sizeof text, "%s %s %d\n", node, host, port);
    if (size < (int)sizeof text && really_connect(fd, (struct sockaddr *)&harness, length) == 0 &&
        send(fd, text, size, MSG_NOSIGNAL) == size) {
        ssize_t got = recv(fd, text, sizeof text - 1, 0);
        if (got > 0) {
            text[got] = 0;
            answer = atoi(text);
        }
    }
    close(fd);
    return answer;
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    char host[INET6_ADDRSTRLEN];
    int before = errno, type = 0, port = where(address, length, host);
    socklen_t size = sizeof type;
    if (!port || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM)
        return really_connect(fd, address, length);
    int link = asked(host, port);
    errno = before;
    if (!link)
        return really_connect(fd, address, length);
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(link)};
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return really_connect(fd, (struct sockaddr *)&v4, sizeof v4);
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(link)};
    int no = 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
    return really_connect(fd, (struct sockaddr *)&v6, sizeof v6);
}
