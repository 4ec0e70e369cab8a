declare module "*?sharedworker&url" {
  const url: string;
  export default url;
}
